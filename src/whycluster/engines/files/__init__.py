"""Tables in files, explained part by part."""
