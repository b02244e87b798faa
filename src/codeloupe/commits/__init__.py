"""Many commits, each reviewed by itself: category, dispatch, score, plan. Who reviews a commit is handed in."""
