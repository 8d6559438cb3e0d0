from pathlib import Path

import cujit

image = cujit.compile(Path("softrows/softmax.cu"), names=["softmax<float>"], arch="sm_90")
print(image.provenance.outcome.value)
if not image.provenance.is_hit:
    print(image.provenance.why())
