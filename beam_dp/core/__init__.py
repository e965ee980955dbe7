"""The numeric core: plain functions on arrays. Nothing in this package imports Apache Beam."""
