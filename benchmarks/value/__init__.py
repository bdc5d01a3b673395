"""What the notion is worth, and what a good recipe is worth: a study of our own, with the machinery of `reproduction`.

python -m benchmarks.value            # from the root of the repository: about 7 minutes of computing
python -m benchmarks.value --quick    # a smaller grid on three settings, into a folder of your own: --out DIR
"""
