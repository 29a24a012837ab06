"""graph → Plan: rewrites, fusion, views, memory. Names no op; reads its record."""
