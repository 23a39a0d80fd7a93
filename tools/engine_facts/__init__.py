"""Reads what released wheels of vLLM and SGLang know, without importing them. A tool for developers."""
