"""python -m nsys2prv_ng"""

from nsys2prv_ng.cli.program import main

main()
