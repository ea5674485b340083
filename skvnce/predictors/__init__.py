"""Classifier and regressor of several completed tables."""
