"""Access of one caller: permissions, row rules."""
