"""Charts as SVG, as tables with bars, and as images. They know numbers, names and colours, but no job."""
