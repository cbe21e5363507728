"""How the frameworks of a program that holds a part of a GPU are kept to that part of its memory."""
