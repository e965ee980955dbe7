"""How a user's unit of sensitivity is spread over its items; one file a rule."""
