// Placeholder so that the layer configures before its first source exists; delete it with the first source.
