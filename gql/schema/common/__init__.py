"""Parts of the schema that several types share: inputs, scalars, enums."""
