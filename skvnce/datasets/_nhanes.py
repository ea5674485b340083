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

Categories (``categories=True``): SurveyYr, Gender, Race1, Diabetes and SmokeNow (of
those who ever smoked), nominal; Education, ordered.
"""
_EDUCATION = [
    "8th Grade",
    "9 - 11th Grade",
    "High School",
    "Some College",
    "College Grad",
]
_NOMINAL = ["SurveyYr", "Gender", "Race1", "Diabetes", "SmokeNow"]


def load_nhanes(*, as_frame=False, categories=False):
    """Load 19 measurements of 4,835 US adults, with missing values.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame.
    categories : bool, default=False
        Whether six columns of categories follow, of the dtype ``category``; only with
        `as_frame`.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` of shape (4835, 19), or (4835, 25) with categories, NaN where missing;
        ``feature_names``; ``frame``, the same as ``data`` or None; ``DESCR`` with
        sources, terms and units.

    Raises
    ------
    ValueError
        If `categories` is True and `as_frame` is not.

    Examples
    --------
    >>> from skvnce.datasets import load_nhanes
    >>> load_nhanes().data.shape
    (4835, 19)
    """
    columns = bundled("nhanes_adults.csv.gz")
    names = [name for name in columns if name not in (*_NOMINAL, "Education")]
    found = bunch(numbers(columns, names), names, _DESCRIPTION, as_frame=as_frame)
    if categories:
        if not as_frame:
            raise ValueError("categories=True needs as_frame=True.")
        found.data = found.frame = _with_categories(found.data, columns)
        found.feature_names = list(found.data)
    return found


def _with_categories(frame, columns):
    """Append the columns of categories to a data frame."""
    import pandas as pd

    def category(name, levels=None):
        cells = [cell or None for cell in columns[name]]
        return pd.Categorical(cells, levels, ordered=levels is not None)

    nominal = {name: category(name) for name in _NOMINAL}
    return frame.assign(**nominal, Education=category("Education", _EDUCATION))
