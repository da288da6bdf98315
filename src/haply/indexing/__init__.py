"""Indexed tables: their files, and how both engines write and read them."""
