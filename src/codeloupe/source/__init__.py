"""Source code as text: the files of a review, their lines, statements and comments."""
