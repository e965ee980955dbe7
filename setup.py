"""The only manifest of dependencies; CONTRIBUTING.md gives the reason for each."""

from pathlib import Path

from setuptools import find_packages, setup

TEST = ["hypothesis>=6.100", "pytest>=8", "pytest-xdist>=3.5"]
FIGURES = ["matplotlib>=3.8"]
PIPELINE_DP = ["pipeline-dp>=0.3.1"]
LINT = ["mypy>=1.13", "pre-commit>=3.7", "ruff>=0.8", "scipy-stubs>=1.14"]

setup(
    name="beam-dp",
    version="0.1.0.dev0",
    description="User-level differentially private partition selection and counting on Apache Beam",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["beam_dp", "beam_dp.*", "pipelines", "pipelines.*"]),
    package_data={"beam_dp": ["py.typed"]},
    install_requires=[
        "apache-beam>=2.77,<3",
        "dp-accounting>=0.6,<1",
        "numba>=0.61",
        "numpy>=1.26",
        "pyarrow>=18",
        "scipy>=1.13",
    ],
    extras_require={
        "test": TEST,
        "figures": FIGURES,
        "pipeline_dp": PIPELINE_DP,
        "gcp": ["apache-beam[gcp]>=2.77,<3"],
        "aws": ["apache-beam[aws]>=2.77,<3"],
        "dev": TEST + FIGURES + LINT,
    },
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3.11",
        "Topic :: Security",
    ],
)
