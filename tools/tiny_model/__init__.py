"""Make the tiny models that the engine tests load.

Real engines need real weights, and the tests need to know what the answer must be. Neither calls
for a large model: a Llama of 0.6 million parameters learns the few facts in `corpus` by heart in
less than a minute on two cores, and from then on its greedy answers are as predictable as a table.

The order of the modules is the order of the work: `stamp` (is there anything to do?), `place`
(where the result goes), `corpus` (what is taught), `tokenizer`, `examples` (text to tokens), `fit`
(the training loop), `llama`, `adapter` and `t5` (one model each), `greedy` (the proof that it
worked), `build` (all of it, in order).

What `make_tiny_model` imports before `build` needs the standard library only, from Python 3.10 on.
"""
