"""Raw BSON documents: fields, differences, patches and updates."""
