"""Task families that are not solved yet: MRCR, graph walks, aggregation, worlds, ladder, agent logs."""
