"""`make demo`: the main job on real services, for somebody who has just cloned the repository."""
