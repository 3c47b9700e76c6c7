"""Tool calls after a long session: is the call still right, and which step of it breaks first?"""
