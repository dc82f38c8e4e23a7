"""Messages of a script, as `mindspore.log`: `from mindspore import log as logger; logger.info("…")`.

GLOG_v sets what is shown, as MindSpore has it: 0 debug, 1 info, 2 warning (the default), 3 error, 4 critical.
"""
import logging
import os

_logger = logging.getLogger("minispore")
_logger.setLevel({"0": 10, "1": 20, "3": 40, "4": 50}.get(os.environ.get("GLOG_v", "2"), 30))      # noqa: SIM112

debug, info, warning, error, critical = (_logger.debug, _logger.info, _logger.warning, _logger.error, _logger.critical)
