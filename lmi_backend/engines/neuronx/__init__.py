"""AWS Neuron through optimum-neuron. Built to the source of its 0.4.5; never run on a device."""
