"""A selection in the formats of other tools, and what people marked there back as marks."""
