"""BSON documents as bytes: fields, differences, patches."""
