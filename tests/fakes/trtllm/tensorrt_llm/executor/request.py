from pathlib import Path


class LoRARequest:
    def __init__(
        self, lora_name: str, lora_int_id: int, lora_path: str = "", lora_ckpt_source: str = "hf"
    ) -> None:
        if lora_path and not Path(lora_path).exists():
            raise ValueError(f"lora_path ({lora_path}) does not exist.")
        self.lora_name, self.lora_int_id = lora_name, lora_int_id
        self.lora_path, self.lora_ckpt_source = lora_path, lora_ckpt_source
