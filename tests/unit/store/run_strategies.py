"""Any run of a pipeline that the model allows."""

from tests.unit.store.history_samples import any_of as any_value

__all__ = ["any_value"]
