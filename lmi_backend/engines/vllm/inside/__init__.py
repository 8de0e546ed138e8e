"""All that depends on the inside of vLLM, and nothing else of this package does.

vLLM is imported here and nowhere else, and only here are its objects changed, subclassed or read
beyond what its documentation promises.
"""
