"""Pictures of fitted estimators; matplotlib and networkx are imported at first use."""

from skvnce.inspection._graph import GraphDisplay

__all__ = ["GraphDisplay"]
