#pragma once
template <class ElementType>
struct alignas(16) Packed128 {
    Packed128() = default;
    __device__ explicit Packed128(int4 bits) { memcpy(&payload, &bits, sizeof(bits)); }
    __device__ ElementType &operator[](int index) { return payload[index]; }
    static constexpr const size_t size = sizeof(int4) / sizeof(ElementType);
    ElementType payload[size];
};
template <class ElementType> __device__ Packed128<ElementType> load128(const ElementType *address) {
    return Packed128<ElementType>{*reinterpret_cast<const int4 *>(address)};
}
typedef Packed128<float> x128;
