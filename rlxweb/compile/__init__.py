"""graph → Plan: rewrites, fusion, views, memory. Never names an op; reads its record."""
