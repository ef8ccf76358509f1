"""What evidence means: pure functions from cell runs and policy to findings, verdicts, a decision.

Owns: the gates, the statistics, policy, references, known issues.
Must not know: processes, GPUs, torch, vLLM.
"""
