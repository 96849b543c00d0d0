"""Parts of reads as of a moment: a walk over ids, filters of contents, referring documents."""
