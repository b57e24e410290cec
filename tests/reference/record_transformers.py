"""Records small networks of Hugging Face's transformers with their outputs, which yoke's must equal: GPT-2 and BERT.

    python record_transformers.py transformers/      (pip install torch transformers peft)

Writes transformers/gpt2, bert and bert-classifier: config.json, model.safetensors, and expected.safetensors with `tokens`, for
BERT a `mask`, and the result of the model. The files of GPT-2 and the classifier also have the gradients of the loss, as
`gradient.NAME`. transformers/bert-adapter has what peft writes of adapters beside the classifier, and the logits with them.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, BertModel, GPT2Config, GPT2LMHeadModel

folder = pathlib.Path(sys.argv[1])
torch.manual_seed(0)


def shake(model):
    """Makes all weights matter: fresh biases are 0, norms are 1 and everything else is small."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def save(model, name, tensors):
    model.save_pretrained(folder / name)
    (folder / name / "generation_config.json").unlink(missing_ok=True)
    save_file({key: value.detach().contiguous() for key, value in tensors.items()}, folder / name / "expected.safetensors")


gpt = shake(GPT2LMHeadModel(GPT2Config(vocab_size=30, n_positions=12, n_embd=12, n_layer=2, n_head=3, bos_token_id=None, eos_token_id=None)))
tokens = torch.randint(30, (2, 12))
output = gpt(tokens, labels=tokens)
output.loss.backward()
gradients = {"gradient." + name: parameter.grad for name, parameter in gpt.named_parameters()}
save(gpt, "gpt2", {"tokens": tokens, "logits": output.logits, **gradients})

bert = shake(
    BertModel(
        BertConfig(
            vocab_size=30,
            max_position_embeddings=12,
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=20,
        )
    )
)
tokens = torch.randint(30, (3, 10))
mask = torch.arange(10) < torch.tensor([[10], [4], [7]])
types = (torch.arange(10) > torch.tensor([[6], [2], [9]])).long()
hidden = bert(tokens, attention_mask=mask.long(), token_type_ids=types).last_hidden_state
save(bert, "bert", {"tokens": tokens, "mask": mask, "types": types, "hidden": hidden})

labels = {0: "bad", 1: "fine", 2: "good"}
classifier = shake(
    BertForSequenceClassification(
        BertConfig(
            vocab_size=30,
            max_position_embeddings=12,
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=20,
            id2label=labels,
            label2id={name: number for number, name in labels.items()},
        )
    )
)
target = torch.tensor([0, 2, 1])
texts = {"input_ids": tokens, "attention_mask": mask.long(), "token_type_ids": types}
output = classifier(**texts, labels=target)
output.loss.backward()
gradients = {"gradient." + name: parameter.grad for name, parameter in classifier.named_parameters()}
inputs = {"tokens": tokens, "mask": mask, "types": types}
save(classifier, "bert-classifier", {**inputs, "target": target, "logits": output.logits, **gradients})

adapted = get_peft_model(
    classifier,
    LoraConfig(
        task_type="SEQ_CLS", r=3, lora_alpha=5, target_modules=["query", "value"], modules_to_save=["classifier", "pooler"]
    ),
).eval()
with torch.no_grad():
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn_like(parameter) * 0.2)
adapted.save_pretrained(folder / "bert-adapter")
(folder / "bert-adapter" / "README.md").unlink(missing_ok=True)
save_file({"logits": adapted(**texts).logits.detach()}, folder / "bert-adapter" / "expected.safetensors")
