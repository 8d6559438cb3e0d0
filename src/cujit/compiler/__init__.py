"""From a Request to an Artifact: compile, link, bundle, build."""
