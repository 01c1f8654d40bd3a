"""What the commands of `winkle` do, one module a group; each is imported when it is used."""
