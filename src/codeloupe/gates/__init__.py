"""What decides on the result of a stage: a critic, a command, a review, a person."""
