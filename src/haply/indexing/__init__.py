"""Indexed tables: their files, and the code with which both engines write and read them."""
