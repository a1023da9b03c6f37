"""Operations over ranks: collectives and messages, as the parts that ranks have in them, matched over all reports."""
