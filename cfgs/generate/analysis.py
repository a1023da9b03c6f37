"""todo"""

from cfgs.generate.paraver_cfg import Preset

PRESETS: list[Preset] = []
