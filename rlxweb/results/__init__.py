"""Methods that all results share: conversion to tables and files, pictures in
notebooks.
"""
