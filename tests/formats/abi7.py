"""A cubin of ABI 7, which toolkits before 13.0 write: NVRTC 12.9.86, -arch=sm_90a, of the source below."""

from __future__ import annotations

import base64
import zlib

SOURCE = r"""
struct Mixed { char c; double d; };
extern "C" __global__ void tile(Mixed m, const float* x, float* y) {
    __shared__ float s[300];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[299 - threadIdx.x];
}
"""

_PACKED = r"""
c-
rk(Uu)A)6hBFC(`@aUZVI;eXH_Oll&(xrU&QI03OW?_wmrnmrR$*oNaASRz*a?u4@2MfD1HFht1mL}P5cOgID8s{`vB8;Z*r5~Ce1p84TK#?&p
E$)e)pVvdYgOubmHDEp5rdYz!4rkLK9lDo^W)&$I;V$(=Y~CAc{Yezyaj+qHbu0GK(!&n`K7Jda*KBhg@Ybw@@imA!n#{BWEm>R1a%;dQs8Txq
z>!x~eT=BM;avu~T4IVf{IE_VK)2(3G+>7yy)Z1Sff<luGlOQY+eCO{*GJ!>rM<YDG7cijjAw-
;?ZbOWa;emDO^tS}5qMkq_yWELRp~FMe`jQg-6yysVTK6g{N;gX^%js6DrN6h9H@4d8ceJRZPj@N=5+5!J8olYN`$oP-NP-
|YEO0GBv|#{&3yj1Q!kI(hm#vg7*#@fMaL#wLREEfXyznvKRVh*q;PEZU|Mb0MrrG#9!<K1j_8%EIo52qM-
=V)r|?jSn#PWn{kt(6I!aE)B4K+VeR`wfVMeUx&y8ytd;Opc4qPWSyBTpk5Kkt0To@`x5eUkot-KL-lW}cc{L}EJcL<lV?kuWp5{vWK)8SN%s)
hG`S=m=Pg*lHi<ctgbz;yOrk!HKU?SH$gXoW2A>C^X#y`0e&$pH-T{0vqt1L}j#)fk9kn(g=BMf?PWFoR-
HH+ajfSFR_}a#*1Ybs=e>rB)Z>6yRLqh$_0%CkzAF}MtOzIg*di5Yu&*mVk=yY?E^=;jUlS|Ad|0%%>vq$j8hm-IU*H6ALA(KiF{-
o)~HzKel!EJNL{*El`c?32jNSjPE|3m*!4&@+)v(J&Bj8Xlo%TW{$;ZM=Pac+11k=F6hCTkSj_PuxAcW;{N*PV|?SfND~yVQTqQ8hn*oATW=Fy
cF}UAap6V?O*S4SdM(dpqzqoSFjp4H}pY$?x`|K{0>+HD4k(zrTO)yYSNtA9di5(w++B3}z+Te)dNwx6$FAMDTHc1LzfIojGhf^>2pqBO&~5SE
;WQyAi_A^SkF4D7GGQbxU*YT4d_@S6-CuZ^&KC)htigr7zz9E3tE(VLZ1#d0)Q2G3;8N
"""


def cubin() -> bytes:
    return zlib.decompress(base64.b85decode("".join(_PACKED.split())))
