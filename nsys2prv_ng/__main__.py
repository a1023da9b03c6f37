"""python -m nsys2prv_ng"""

from nsys2prv_ng.cli import main

main()
