"""Texts that users of KAI match on: why a gang or a pod does not run, in the words of KAI."""
