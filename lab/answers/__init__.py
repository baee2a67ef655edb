"""Finished answers, the fixed inputs of the experiment `answers`: a file a source, and what wrote them.

`questions.jsonl` is what the models are asked: 60 everyday questions of our own, then the first 20 rows of
GSM8K, of HumanEval and of MMLU (all MIT). `gsm8k.jsonl` has solutions that people wrote, of rows that are not
asked, without their notes for a calculator; `dream-7b.jsonl` the published runs that are not cut (MIT,
Benjamin Wade). The first line of a file says who wrote it; every other is one text with its prompt.
"""
