"""What tests share, by subject; the first line of each module says what it gives.

Servers: harness (a service without Triton), serving (`lmi-backend serve`), pods, routers, proxies,
in_process_host, vllm_server, container, walks.

The package with something more, or beside an engine that is not here: added, installed_engine,
queried_engine, neuron.

Doubles of what the package talks to: idle_workers, scripted_workers, service_bench,
simulated_engines, endpoints, buffering, scripted_model, endpoint_picker, cutting_proxy,
http_double, hub_server, s3_server, frames_model, obedient, obedient_model, triton_double,
model_end, looking.

Requests and answers: asking, streams, failing_streams, running_response, mixed_chats,
steady_load, triton_bodies, triton_client, openai_corpus, explained, lmi_answers.

Harm: attackers, hostile, hostile_clients, planted_faults, doors.

What the engine's interpreter runs: unread_arguments, vllm_arguments, vllm_copies, vllm_fields,
vllm_grammars, vllm_images, vllm_interpreter, vllm_layout, vllm_refusals, media_process, releases,
compiling.

Records, and documents of others: measured, pages, published_logs,
manifests, facts, browser, certificates.

The run of the tests: places, ports, processes, waiting, sharing, shell, spending, left_behind,
left_out.
"""
