"""System checks. (Filled in by the backends.)"""
