-- The work tree in which a review was asked for.
ALTER TABLE reviews ADD COLUMN work_tree text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sweeps ADD COLUMN work_tree text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX reviews_of_work_tree ON reviews (work_tree, turn) WHERE sweep_id IS NULL;
CREATE INDEX sweeps_of_work_tree ON sweeps (work_tree, turn);
