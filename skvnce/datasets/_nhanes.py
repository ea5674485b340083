"""Measurements of US adults, with the missing values of the survey."""

from skvnce.datasets._tables import bunch, bundled, numbers

_DESCRIPTION = """\
NHANES adults
=============

19 non-negative measurements of 4,835 adults in the US National Health and
Nutrition Examination Survey, cycles 2009-2010 and 2011-2012; 11 % of the cells are
genuinely missing, 0-57 % of a column (testosterone was measured in one cycle only).
US public domain (National Center for Health Statistics).  Rows are those of a teaching
sample that was resampled to undo the survey weights, repeated persons removed.

Units: Age years; Poverty ratio of family income to the poverty line (capped at 5);
HomeRooms count; Weight kg; Height cm; BMI kg/m2; Pulse 1/min; BPSysAve, BPDiaAve mmHg;
Testosterone ng/dL; DirectChol, TotChol mmol/L; UrineVol1 mL; UrineFlow1 mL/min;
DaysPhysHlthBad, DaysMentHlthBad bad days in the last 30; SleepHrsNight hours;
PhysActiveDays days a week; AlcoholDay drinks on a drinking day.
"""


def load_nhanes(*, as_frame=False):
    """Load 19 measurements of 4,835 US adults, with missing values.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` of shape (4835, 19), NaN where missing; ``feature_names``; ``frame``,
        the same as ``data`` or None; ``DESCR`` with sources, terms and units.

    Examples
    --------
    >>> from skvnce.datasets import load_nhanes
    >>> load_nhanes().data.shape
    (4835, 19)
    """
    columns = bundled("nhanes_adults.csv.gz")
    names = list(columns)
    return bunch(numbers(columns, names), names, _DESCRIPTION, as_frame=as_frame)
