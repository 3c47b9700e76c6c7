"""Checks of a model and its server: does it read what it is sent, and answer as it is asked?"""
