"""Names what sentences and tables are about: the time that is judged, parts of GPU time, links, stages."""
